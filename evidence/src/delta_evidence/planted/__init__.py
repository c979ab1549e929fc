"""The planted-credit benchmark: where token weights land on tasks that know their decisive tokens."""
