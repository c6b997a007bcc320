"""Rules of attention by family: each public class is a variant."""
