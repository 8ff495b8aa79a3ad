"""What a page has imported before."""

import afspark as af
