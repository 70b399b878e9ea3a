-- Orders come from a topic; the sum of each item goes to another one and can be queried.
create table orders (id bigint primary key, item varchar, paid decimal(12, 2));
create materialized view sales as
    select item, sum(paid) as paid, count(*) as orders from orders group by item;
