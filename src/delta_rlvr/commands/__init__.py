"""What the command line does: each module is one subcommand, composed from the other rooms."""
