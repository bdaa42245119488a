"""From suites to runs that can be executed: load, expand, resume, grade again."""
