#include "transport/memory_table.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <string_view>
#include <vector>

namespace renga {
namespace {

// "3.4 MiB", "-512 B": with one decimal below 100 of a unit.
std::string Size(int64_t bytes) {
  constexpr std::string_view kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (std::abs(value) >= 1024.0 && unit + 1 < std::size(kUnits)) {
    value /= 1024.0;
    ++unit;
  }
  char digits[32];
  std::snprintf(digits, sizeof digits, "%.*f", unit == 0 ? 0 : 1, value);
  return std::string(digits) + " " + std::string(kUnits[unit]);
}

using Line = std::vector<std::string>;

// The first column and the last to the left, numbers to the right.
std::string InColumns(const std::vector<Line>& lines) {
  std::vector<size_t> widths(lines.front().size());
  for (const Line& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) {
      widths[i] = std::max(widths[i], line[i].size());
    }
  }
  std::string text;
  for (const Line& line : lines) {
    std::string row = line[0] + std::string(widths[0] - line[0].size(), ' ');
    for (size_t i = 1; i < line.size(); ++i) {
      const bool number = i + 1 < line.size();
      row += "  ";
      if (number) row.append(widths[i] - line[i].size(), ' ');
      row += line[i];
    }
    row.erase(row.find_last_not_of(' ') + 1);
    text += row + "\n";
  }
  return text;
}

}  // namespace

std::string MemoryTable(const MemoryReport& report) {
  std::vector<Line> lines = {{"purpose", "bytes", "buffers", "per hour", ""}};
  for (const MemoryReport::Row& row : report.rows) {
    lines.push_back({row.purpose, Size(row.bytes), std::to_string(row.buffers),
                     row.bytes_per_hour == 0 ? "-" : Size(row.bytes_per_hour),
                     row.leak_suspected ? "LEAK?" : ""});
  }
  const int64_t free =
      report.kv_pages_total - report.kv_pages_used - report.kv_pages_cached;
  return InColumns(lines) + "KV pages of " + Size(report.kv_page_bytes) + ": " +
         std::to_string(report.kv_pages_total) + " in all, " +
         std::to_string(report.kv_pages_used) + " used, " +
         std::to_string(report.kv_pages_cached) + " cached, " + std::to_string(free) +
         " free\n";
}

}  // namespace renga
