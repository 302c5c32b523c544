#include "transport/memory_table.h"

#include <gtest/gtest.h>

namespace renga {
namespace {

TEST(MemoryTableTest, PurposesStandInColumnsAndALeakIsMarked) {
  MemoryReport report;
  report.rows = {{.purpose = "weights", .bytes = 90 << 20, .buffers = 12},
                 {.purpose = "heap",
                  .bytes = 1536,
                  .buffers = 123456,
                  .bytes_per_hour = 3 << 20,
                  .leak_suspected = true},
                 {.purpose = "kv_pool", .bytes = int64_t{5} << 40, .buffers = 1},
                 {.purpose = "x", .bytes = -512}};
  report.kv_pages_total = 100;
  report.kv_pages_used = 30;
  report.kv_pages_cached = 20;
  report.kv_page_bytes = 64 << 10;
  EXPECT_EQ(MemoryTable(report),
            "purpose     bytes  buffers  per hour\n"
            "weights  90.0 MiB       12         -\n"
            "heap      1.5 KiB   123456   3.0 MiB  LEAK?\n"
            "kv_pool   5.0 TiB        1         -\n"
            "x          -512 B        0         -\n"
            "KV pages of 64.0 KiB: 100 in all, 30 used, 20 cached, 50 free\n");
}

TEST(MemoryTableTest, AReportWithoutRowsIsATableToo) {
  EXPECT_EQ(MemoryTable({}),
            "purpose  bytes  buffers  per hour\n"
            "KV pages of 0 B: 0 in all, 0 used, 0 cached, 0 free\n");
}

}  // namespace
}  // namespace renga
