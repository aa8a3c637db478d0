"""What is wrong with a server, told from what it exports: ranked suspects with their evidence."""
