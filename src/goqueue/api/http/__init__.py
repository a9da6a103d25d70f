"""REST over HTTP/1.1."""
