"""Which replica serves an exchange: filters, cost in milliseconds, pick. Pure, over one fleet snapshot."""
