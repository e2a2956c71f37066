"""What runs inside judge, nursery, contestant and compile nursery: standard library, torch and triton only."""
