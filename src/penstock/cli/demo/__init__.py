"""`penstock demo`: a small shop that works, fails, mends itself, and proves at the end that nothing was lost."""
