-- The same as orders.yaml, as SQL, with a lake of its own: two streams cannot add files to one folder.
-- goqueue pipeline run examples/pipelines/orders.sql
SET pipeline.name = orders-sql;
SET pipeline.trigger = every 5 seconds;
SET broker.bootstrap = 127.0.0.1:9092;

CREATE TEMPORARY VIEW orders (id BIGINT NOT NULL, customer STRING NOT NULL, amount DOUBLE, at TIMESTAMP NOT NULL)
USING goqueue
OPTIONS (topic 'orders', format 'json', dead_letter_topic 'orders.bad');

CREATE TEMPORARY VIEW customers USING csv OPTIONS (path 'customers.csv');

CREATE TEMPORARY VIEW enriched AS
SELECT o.id, o.customer, c.country, o.amount, o.at, to_date(o.at) AS day
FROM orders o LEFT JOIN customers c ON o.customer = c.customer;

INSERT INTO topic.`orders-by-minute` WITH (key = 'country', createTopics = 'true')
SELECT window.start AS minute, country, count(*) AS orders, round(sum(amount), 2) AS revenue
FROM enriched WATERMARK at DELAY OF INTERVAL 2 MINUTES
GROUP BY window(at, '1 minute'), country;

INSERT INTO parquet.`data/lake/orders-sql` WITH (name = 'lake', partition_by = 'day')
SELECT * FROM enriched;
