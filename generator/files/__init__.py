"""Files of people and of machines: read within limits, checked by a schema, written whole, one writer at a time; processes that end with their parent."""
