"""KV events: decoding and gap tracking are pure; `feed` alone has sockets."""
