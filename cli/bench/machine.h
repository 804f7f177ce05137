// `gradbus bench machine`: the limits beside which every other figure stands. Main thread only.
#pragma once

#include <string>

namespace gradbus {

// Measures for about 3 s, prints a table, and writes a JSON object to `json` (json_file.h). The
// exit code.
int bench_machine(const std::string& json);

// "AMD EPYC ...; 2 cores; L3 32 MiB; 23 GiB; Linux 6.1.0": for the first line of each table.
std::string machine_text();

}  // namespace gradbus
