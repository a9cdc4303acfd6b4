"""Files of people and of machines: read within limits, checked by a schema, written whole, one writer at a time, one file by whatever path; processes that end with their parent."""
