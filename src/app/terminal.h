// What is to be known of the terminal, and text that does no harm there.
//
// Thread safety: free functions without state.

#pragma once

#include <string>
#include <string_view>

namespace renga {

// Whether somebody is looking at this descriptor, on something that can move its cursor.
bool IsTerminal(int descriptor);

// Whether such a terminal should get colours (https://no-color.org).
bool WantsColour();

// Foreign text as it may be shown on a terminal: nothing in it moves the cursor, changes
// colours, titles or the direction of other text. Line ends and tabs stay; other control
// characters, the bidirectional overrides and what is not UTF-8 become U+FFFD, and the
// carriage return of a line end goes.
std::string SafeForTerminal(std::string_view text);

}  // namespace renga
