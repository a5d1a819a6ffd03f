"""One loss a file: what a trained token costs; `aggregate` says how tokens become one number."""
