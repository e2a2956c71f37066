"""Where to expand next: pure policy over immutable snapshots. No SQL, no torch, no network."""
