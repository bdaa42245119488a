"""The labeling page's server: access, requests and static files."""
