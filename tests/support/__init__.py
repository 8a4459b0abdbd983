"""What several folders of tests use. No test lives here."""
