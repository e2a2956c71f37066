"""The terminal: screens, widgets and the command line."""

import os

# Over SSH the bytes of one key may arrive apart, so Escape alone is told late; Textual reads this when imported.
if os.environ.get("SSH_CONNECTION") or os.environ.get("SSH_TTY"):
    os.environ.setdefault("ESCDELAY", "300")
