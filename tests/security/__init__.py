"""What attackers did, by kind; each test is of a whole kind, not of one example.

- `test_writing`: bodies behind heads, lengths that are promised, failures after the head, clients that do not read
- `test_sent_twice`: how many calls of a backend one request costs
- `test_memory_of_bodies`, `test_memory_of_loads`, `test_compressed_bodies`, `test_frames`, `test_pipelined`: memory
  that small or unfinished requests take
- `test_foreign_values`, `test_foreign_streams`, `test_growth_rules`: work that grows faster than what is received
- `test_client_values`: values of clients and backends in addresses, headers and lines of streams
- `test_browsers`: pages of other sites

Dead processes, locked files and hung workers are in `tests/operations`, fuzzers in `tests/fuzz`, minutes of load behind
`make soak`.
"""
