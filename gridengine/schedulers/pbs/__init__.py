"""Workers in jobs of an OpenPBS or a PBS Professional."""
