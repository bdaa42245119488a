"""Tables from records alone, for spreadsheets and other programs."""
