"""What the commands of ``sk-mice`` do; `sk_mice.cli` runs them."""
