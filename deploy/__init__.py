"""What runs Headrace in production: recipes, images, charts."""
