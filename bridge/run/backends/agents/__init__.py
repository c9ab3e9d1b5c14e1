"""Backends that are agents: programs that the bridge starts and speaks to, or servers of a WebSocket.

| module | contents |
|---|---|
| `backend` | `AgentBackend`, and one run of it |
| `pool` | the processes of all owners, and in which one a session is |
| `process` | one process: its connection, its sessions |
| `session` | one session: its open prompt, and the questions that wait for an answer |
| `program` | how a process is started |
"""
