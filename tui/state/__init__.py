"""What the screens show, worked out without any user interface: fold events, sort rows, choose words."""
