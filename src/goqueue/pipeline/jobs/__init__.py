"""Jobs over bulk data. Each is a function from frames to frames with a thin runner around it."""
