"""Files of JSON and JSON Lines from anybody: reading with clear errors, locked appends, and links."""
