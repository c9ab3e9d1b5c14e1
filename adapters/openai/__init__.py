"""What OpenAI's APIs share, and dialects that were made after them: no dialect, but a kit that dialects import."""
