package interop

import (
	"strings"
	"testing"
)

// sequence does with Go what `interop-peer sequence` does in Rust. PEER.md
// has the steps.
type sequence struct {
	name string
	do   func(*goSequence)
}

var sequences = []sequence{
	{"enqueue", (*goSequence).enqueueAll},
	{"done", (*goSequence).done},
	{"complete", (*goSequence).complete},
	{"retry", (*goSequence).retry},
	{"archive", (*goSequence).archive},
	{"forward-scheduled", (*goSequence).forwardScheduled},
	{"forward-retry", (*goSequence).forwardRetry},
	{"requeue", (*goSequence).requeue},
	{"active", (*goSequence).active},
	{"aggregate", (*goSequence).aggregate},
	{"janitor", (*goSequence).janitor},
	{"inspect", (*goSequence).inspect},
}

// The same operations leave the same keys, whoever performs them.
func TestKeySpacesAreEqual(t *testing.T) {
	t.Parallel()
	for _, s := range sequences {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			goSide := newFixture(t)
			s.do(&goSequence{fixture: goSide})
			inGo := goSide.dump()

			rustSide := newFixture(t)
			_, refused := run(t, interopPeer(t), "sequence", s.name, "--redis", rustSide.url)
			if refused != nil {
				t.Fatalf("interop-peer sequence %s: exit %d: %s", s.name, refused.code, refused.stderr)
			}
			inRust := rustSide.dump()
			if found := differences(inGo, inRust); len(found) > 0 {
				t.Errorf("%d differences:\n  %s", len(found), strings.Join(found, "\n  "))
			}
			if len(inGo) == 0 {
				t.Error("Go wrote nothing: the comparison is empty")
			}
		})
	}
}
