"""Evidence: does the credit land where it should (`planted`), and does it help (`learning`)? Many policies at once (`stack`)."""
