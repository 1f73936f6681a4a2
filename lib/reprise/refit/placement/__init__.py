"""From the trainer's shards to a receiver's storage: ownership, projection, and copy plans of native loaders."""
