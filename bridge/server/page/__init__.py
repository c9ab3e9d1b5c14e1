"""The page at `/`: routes and backends, a chat in every dialect, and what crossed the wires while it ran."""
