"""The contenders, one small file each: what to start on which host, and the program that is started there."""
