"""Who makes candidates: proposers behind one protocol."""
