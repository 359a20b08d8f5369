"""Tell when clients turned malicious, at a false-alarm rate that holds: statistics, thresholds and the monitor."""
