"""Media of clients: URLs checked at the edge, by default fetched and inlined, so that no engine has to fetch them."""
