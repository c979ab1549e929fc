"""docs/evidence.md: one page of what the kept studies say."""
