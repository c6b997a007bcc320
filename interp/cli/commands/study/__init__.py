"""Study a subject: refusal, syntax, word alignment, speech, images, pictures in text."""

GROUP = "Measure"
