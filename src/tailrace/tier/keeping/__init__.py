"""What a leader does to keep a log in two tiers: copies, retention, deletion. Decisions are pure (`decisions`)."""
