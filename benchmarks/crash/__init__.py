"""A campaign of crashes: kills, full disks, read-only folders and second writers; all must come back bit for bit."""
