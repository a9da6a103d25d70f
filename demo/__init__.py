"""`make demo`: a shop's orders through the broker, the queue and Spark, and a page that shows what came of them."""
