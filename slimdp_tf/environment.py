"""Environment variables of the processes that train."""

from __future__ import annotations

# Memory in large pages where the kernel gives them on request: glibc returns every large tensor's memory to the system,
# and the next one is paid for page by page; with 2 MB a page instead of 4 kB that costs little.
LARGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
