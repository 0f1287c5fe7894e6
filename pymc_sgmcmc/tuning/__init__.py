"""What is chosen for the user: step sizes and their schedules."""
