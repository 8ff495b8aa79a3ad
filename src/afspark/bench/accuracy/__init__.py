"""What failures cost in accuracy: experiments 3 to 5 of the papers."""
