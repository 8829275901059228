from gridengine.cli.main import main

main()
