"""Token mixers whose heads are linear maps other than one softmax: one file per mechanism."""
