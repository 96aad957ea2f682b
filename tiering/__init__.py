"""Where KV cache lies: hashing, prefix index, event feed, truth about hits. Pure unless a module says otherwise."""
