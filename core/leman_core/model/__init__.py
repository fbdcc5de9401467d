"""The words of the product as frozen values, and the rules that need nothing but them. No I/O in here."""
