"""Functions of users: their bundles, versions, registration and servers."""
